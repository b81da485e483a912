"""The nouns: pure values and tables of the engine, on the standard library alone. Nothing here reads a clock, a store or a task."""
