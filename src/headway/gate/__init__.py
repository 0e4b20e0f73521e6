"""The gate: the wire on which training processes ask the scheduler before they send or compute.

Both ends import this package, so it needs nothing but the standard library: `frames` and `protocol`
define what goes over the wire, `address` and `environment` how a worker finds its gate, `sockets`
how both ends are set up, `server` and `connections` the scheduler's end.
"""
