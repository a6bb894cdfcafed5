from warm_integrations.openai_agents.__main__ import *
from warm_integrations.openai_agents.__main__ import main

if __name__ == "__main__":
    raise SystemExit(main())
