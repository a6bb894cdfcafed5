from warm_integrations.core.stores.sqlite.search import *
