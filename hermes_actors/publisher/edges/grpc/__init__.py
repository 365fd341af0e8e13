"""The gRPC server: publishing by the gateway, subscribing by pull subscriptions."""
