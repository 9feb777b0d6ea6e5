"""The model-based test kit: machines, targets, judges and reports."""
