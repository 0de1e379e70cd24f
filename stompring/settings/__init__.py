"""The configuration of a broker as frozen data, and the reader of broker.xml."""
