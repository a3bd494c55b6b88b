"""The rules by family; `trimtab.detect.rules` puts them together."""
