"""The writer's services, which the API calls."""

from dataclasses import dataclass

from flotilla.protocol.errors import Refusal
from flotilla_manager.metadata.errors import Fenced
from flotilla_manager.writer.broker_service import BrokerService
from flotilla_manager.writer.election import WriterElection
from flotilla_manager.writer.groups import GroupCoordinator
from flotilla_manager.writer.registrations import RegistrationService
from flotilla_manager.writer.tokens import TokenService
from flotilla_manager.writer.topic_service import TopicService


@dataclass(frozen=True, kw_only=True)
class WriterServices:
    """Everything that only the writer does. Calls raise Refusal if this manager is not the writer."""

    election: WriterElection
    topics: TopicService
    registrations: RegistrationService
    brokers: BrokerService
    groups: GroupCoordinator
    tokens: TokenService

    @property
    def is_writer(self) -> bool:
        """Whether this manager is the writer, as far as it knows."""
        return self.election.epoch is not None

    def give_up_role(self, error: Fenced) -> Refusal:
        """Give up the role after a fenced transaction; return the error for the client."""
        self.election.lose(error.epoch, str(error))
        return Refusal("unavailable", "Another manager became the writer during the request; try again.")
