"""The load of the benchmarks: heartbeats, readers, watchers, and simulated hosts."""
