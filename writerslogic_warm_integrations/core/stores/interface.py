from warm_integrations.core.stores.interface import *
