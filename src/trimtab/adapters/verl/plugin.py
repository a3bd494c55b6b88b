"""Importing this module registers every objective that verl's policy losses can express; name it as verl's `external_lib`."""

from trimtab.adapters.verl.register import register

register()
