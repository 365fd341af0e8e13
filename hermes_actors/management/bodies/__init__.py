"""Request and response bodies: decoded, validated, merged, and masked."""
