"""Base of this repository's providers: kinds that give their name and schema, and a provider without configuration."""

from __future__ import annotations

from typing import Any, ClassVar

from tf.iface import Config, Provider
from tf.schema import Schema
from tf.utils import Diagnostics


class Kind:
    """A kind of resource or of data source.

    Attributes:
        kind: Its name after the provider's prefix.
        schema: Its schema.
    """

    kind: ClassVar[str]
    schema: ClassVar[Schema]

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    @classmethod
    def get_name(cls) -> str:
        """Return its name after the provider's prefix."""
        return cls.kind

    @classmethod
    def get_schema(cls) -> Schema:
        """Return its schema."""
        return cls.schema


class PlainProvider(Provider):  # type: ignore[misc]
    """A provider with nothing to configure, and only resources.

    Attributes:
        name: Its name in Terraform.
        prefix: The prefix of its resources' names.
    """

    name: str
    prefix: ClassVar[str]

    def get_model_prefix(self) -> str:
        """Return the prefix of its resources' names."""
        return self.prefix

    def full_name(self) -> str:
        """Return its name in Terraform."""
        return self.name

    def get_provider_schema(self, _diags: Diagnostics) -> Schema:
        """Return the schema of the provider's own block."""
        return Schema()

    def validate_config(self, _diags: Diagnostics, _config: Config) -> None:
        """Leave it to Terraform, which compares with the schema."""

    def configure_provider(self, _diags: Diagnostics, _config: Config) -> None:
        """Do nothing: there is nothing to configure."""

    def get_data_sources(self) -> list[Any]:
        """Return nothing: it has no data sources."""
        return []
