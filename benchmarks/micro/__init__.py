"""Single parts of the broker, measured without a reactor."""
