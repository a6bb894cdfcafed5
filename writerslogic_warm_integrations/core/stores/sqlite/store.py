from warm_integrations.core.stores.sqlite.store import *
