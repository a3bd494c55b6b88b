"""Why a reward rises: by its log or its completions, and what else confirms it."""
