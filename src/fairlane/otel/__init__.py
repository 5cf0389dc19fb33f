"""OpenTelemetry: trace contexts of messages (`tracing`), spans (`spans`) and export by OTLP (`export`).

Only `spans` and `export` import OpenTelemetry. They are loaded only in processes that use it.
"""
