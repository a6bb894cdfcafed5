from warm_integrations.core.json_text import *
