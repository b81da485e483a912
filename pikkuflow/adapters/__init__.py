"""What the engine runs on: adapters translate between a port and a product, they never decide. They do not know each other (design 5)."""
