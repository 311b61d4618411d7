"""The log against a model: sequences of steps from Hypothesis, including crashes."""

from hypothesis import settings

from support.logmachine import LogMachine

EXAMPLES_MIN = 300

LogMachine.TestCase.settings = settings(
    settings(), max_examples=max(EXAMPLES_MIN, settings().max_examples), stateful_step_count=40
)
TestLog = LogMachine.TestCase
