"""The queue language: declares an app's queues, commands and webhooks in a file. Nothing here does I/O."""
