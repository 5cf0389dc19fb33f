"""Encryption at rest: a layer between the families of a store and whoever uses them. What is above it sees messages in
clear, what is below it never does."""
