"""The queue language: what an app's queues, commands and webhooks are, in a file. Everything here is pure."""
