"""The core of the broker: addresses, queues, routing and schedules. No I/O; callers inject the time."""
