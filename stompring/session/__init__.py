"""One client's conversation, sans-IO: frames in, broker calls, frames out."""
