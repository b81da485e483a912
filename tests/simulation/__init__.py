"""Deterministic simulation: the real engine, replay and domain code over the memory adapters, under a seeded scheduler (issue B, 4).

One schedule is a pure function of its plan, and a plan of its seed. ``python -m tests.simulation --seed N`` shows one.
"""
