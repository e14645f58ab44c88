"""The schemas of a subject, for tables that have their columns from it."""

from __future__ import annotations

from mainstem.api.lake import WriterSchema
from mainstem.broker.schemas.service import SchemaService
from mainstem.errors import SubjectNotFound
from mainstem.ledger.namespaces import qualify_id
from mainstem.schemas import subjects as names


class SubjectSchemas:
    def __init__(self, schemas: SchemaService) -> None:
        self._schemas = schemas

    def ids(self, namespace: str, subject: str) -> tuple[int, ...]:
        """In the order of versions, with deleted ones: records name them still."""
        stored = qualify_id(namespace, names.normal(subject))
        try:
            versions = self._schemas.versions(stored, deleted=True)
        except SubjectNotFound:
            return ()
        found = (self._schemas.version(stored, each, deleted=True).schema.id for each in versions)
        return tuple(dict.fromkeys(found))

    def writer(self, namespace: str, subject: str, id: int) -> WriterSchema:
        """Raises MalformedSchema if a schema that it refers to is gone."""
        stored = qualify_id(namespace, names.normal(subject))
        schema = self._schemas.by_id(namespace, id, stored)
        references = self._schemas.resolved(stored, schema.references)
        return WriterSchema(
            id, schema.kind, schema.text, tuple((each.name, each.text) for each in references)
        )
