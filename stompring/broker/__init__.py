"""Who gets which message: addresses, queues, rings, schedules. No I/O; time is injected."""
