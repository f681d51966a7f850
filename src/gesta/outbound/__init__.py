"""The only way out: HTTP and SMTP behind the address guard, rate limits, webhook signatures."""
