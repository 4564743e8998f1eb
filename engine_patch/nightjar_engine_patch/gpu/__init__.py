"""vLLM's Model Runner V2 with a draft that obeys the step's speculative length."""
