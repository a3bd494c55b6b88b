"""File formats of metrics logs: JSONL, CSV, Parquet, TensorBoard, W&B, MLflow and others."""
