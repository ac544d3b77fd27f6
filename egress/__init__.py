"""What one sandbox may reach: DNS, nftables, mitmproxy and the Credential Vault."""
