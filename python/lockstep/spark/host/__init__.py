"""The host: what answers the requests of the shim."""
