"""A deployment that makes the hosts and workers of its levels."""

from __future__ import annotations

from lowtide.assignment.birth import Birth
from lowtide.assignment.deployment import Deployment
from lowtide.assignment.welcome import Welcome
from lowtide.worker.host import LevelHost
from lowtide.worker.stage import LevelStage


class LevelDeployment(Deployment):
    """The deployment that the driver pickles for every host process; `lowtide.worker.main` opens it there."""

    def host(self, birth: Birth, welcome: Welcome) -> LevelHost:
        """Make the host that the workers of one process share, in that process."""
        return LevelHost(self, birth, welcome)

    def stage(self, birth: Birth, welcome: Welcome, host: LevelHost) -> LevelStage:
        """Make the stage of one worker, in its process."""
        return LevelStage(self, birth, welcome, host)
