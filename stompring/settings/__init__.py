"""What can be configured, as frozen data, and how it is read from broker.xml."""
