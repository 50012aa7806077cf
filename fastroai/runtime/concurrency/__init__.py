"""Tasks, threads, clocks and lines for coroutines, and entry points without a loop."""
