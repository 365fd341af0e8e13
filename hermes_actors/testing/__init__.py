"""The test kit: a broker for the tests of programs that publish and subscribe (docs/testing.md).

It knows the broker only by its command and its APIs.
"""
