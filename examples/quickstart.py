"""A conversation that outlives its process: the second process knows what was said in the first.

    pip install "writerslogic-warm-integrations[openai-agents]"
    python quickstart.py

It needs no server, no key and no network: the data goes to warm.db in the working directory, and a script answers
in place of a model. WARM_URL=http://127.0.0.1:8080 keeps the data on a warm-server instead.
"""

import asyncio
import subprocess
import sys
import uuid

from agents import Agent, Runner, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message

from warm_integrations.core import WarmConfig
from warm_integrations.openai_agents import WarmSession

set_tracing_disabled(True)  # traces would go to OpenAI


def answer(call):
    """Stands in for a model, and sees what a model sees: the history, with the new message at its end."""
    said = [item["content"] for item in call.input if item["role"] == "user"]
    return [assistant_message(f"You have said {said}.")]


async def talk(session_id: str, message: str) -> None:
    model = ScriptedModel([ModelStep.respond(answer)])  # for a real one, leave it out and set OPENAI_API_KEY
    agent = Agent(name="assistant", model=model)
    session = WarmSession(session_id, WarmConfig())

    result = await Runner.run(agent, message, session=session)
    print("  user:", message)
    print("  assistant:", result.final_output)
    print("  items stored:", len(await session.get_items()))


if len(sys.argv) == 1:
    session_id = f"quickstart-{uuid.uuid4()}"
    print("First process, data in", WarmConfig().url)
    asyncio.run(talk(session_id, "My name is Ada."))
    print("Second process, same session", flush=True)
    subprocess.run([sys.executable, __file__, session_id], check=True)
else:
    asyncio.run(talk(sys.argv[1], "Who am I?"))
