"""What every room may use: locks, the cache, byte ranges, source lines, text that is safe to print."""
