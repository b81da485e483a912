"""Durable canvas on the real engine over memory."""
