"""Google Cloud. So far its price list; machines are not launched there yet."""
