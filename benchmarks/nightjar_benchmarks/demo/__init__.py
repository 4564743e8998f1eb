"""The product on one machine: three pods in turn under the same bursty load."""
