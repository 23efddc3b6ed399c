"""The OpenAI-compatible engine: each conversation is a chat at one of several URLs, and many run at once."""
