"""Trained forward passes for other programs: ONNX models."""
