"""The types of the HTTP API, shared by the server and the client."""
