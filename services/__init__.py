"""The services of Thingway; none imports another."""
