"""The HTTP side: metrics, health and the management API. See docs/metrics.md and docs/http-api.md."""
