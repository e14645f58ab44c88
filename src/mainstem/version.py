"""The version: the only place that names it. The packages read it from here."""

VERSION = "0.1.0"
