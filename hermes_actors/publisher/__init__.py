"""The way in: HTTP request → gateway → topic producer → log → answer."""
