"""The generated stubs of proto/hermes/v1/broker.proto: `make proto` writes them."""
