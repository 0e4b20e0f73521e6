"""The process around the core: event loop, attempts, storage, logs."""
