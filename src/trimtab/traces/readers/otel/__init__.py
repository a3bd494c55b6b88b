"""Read OpenTelemetry spans: GenAI conventions, OpenInference, Vercel's AI SDK."""
