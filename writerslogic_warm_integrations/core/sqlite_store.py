from warm_integrations.core.sqlite_store import *
