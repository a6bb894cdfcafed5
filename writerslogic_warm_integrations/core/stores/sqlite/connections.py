from warm_integrations.core.stores.sqlite.connections import *
